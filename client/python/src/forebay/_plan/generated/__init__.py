"""What plan.proto says, in Python: the tests of forebay-proto generate these modules."""
