"""The works: a file each, which makes its columns, names its contenders, and holds their results against each other."""
