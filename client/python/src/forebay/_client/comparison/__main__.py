"""The command `forebay compare`: exits with 0 if the columns are equal, 1 if they differ, and 2 on an error."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from forebay._client.client import connect
from forebay._client.credentials import Credentials
from forebay._plan.plan import Plan
from forebay.errors import ForebayError

from .comparing import compare

EQUAL, DIFFERENT, ERROR = 0, 1, 2
DEFAULT_SERVER = "grpc://127.0.0.1:8815"


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="forebay compare",
        description="Stream a plan beside the Parquet files that another job wrote; report what differs per column.",
        epilog="Exit codes: 0 equal, 1 different, 2 error.",
    )
    parser.add_argument("--plan", required=True, metavar="FILE", help="JSON file of a plan, or of a fit's result")
    parser.add_argument(
        "--with", required=True, metavar="URL", dest="shards", help="Parquet file, folder or URI", nargs="+"
    )
    parser.add_argument("--dataset", metavar="NAME", help="dataset on the server [default: its only one]")
    parser.add_argument(
        "--by",
        metavar="COLUMN",
        action="append",
        help="key column; repeat it for several [default: pair rows in order]",
    )
    parser.add_argument(
        "--columns", metavar="OUTPUT[=COLUMN]", nargs="+", help="outputs to compare, and their names in the files"
    )
    parser.add_argument(
        "--ulps", metavar="N", type=int, default=0, help="accept floats this many units in the last place apart"
    )
    parser.add_argument("--atol", metavar="X", type=float, default=0.0, help="accept floats that differ by at most X")
    parser.add_argument(
        "--batch-size", metavar="N", type=int, default=4096, help="rows compared at once [default: 4096]"
    )
    parser.add_argument(
        "--examples", metavar="N", type=int, default=5, help="differing rows shown per column [default: 5]"
    )
    server = os.environ.get("FOREBAY_SERVER") or DEFAULT_SERVER
    parser.add_argument("--server", metavar="URL", default=server, help=f"URL of the server [default: {server}]")
    parser.add_argument("--token-file", metavar="FILE", help="file with the bearer token")
    parser.add_argument("--ca", metavar="FILE", help="file of the authorities to trust, in PEM")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


def main(args: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = arguments().parse_args(args)
    try:
        plan = Plan.from_json(Path(given.plan))
        columns = None if given.columns is None else dict(_renamed(name) for name in given.columns)
        credentials = Credentials(token_file=given.token_file, ca=given.ca)
        with connect(given.server, credentials=credentials) as client:
            report = compare(
                plan,
                given.shards,
                url=client,
                dataset=given.dataset,
                by=given.by,
                columns=columns,
                ulps=given.ulps,
                atol=given.atol,
                batch_size=given.batch_size,
                examples=given.examples,
            )
    except (ForebayError, OSError, ValueError, TypeError, LookupError) as error:
        text = error.args[0] if isinstance(error, LookupError) and error.args else error
        print(f"error: {text}", file=sys.stderr)
        return ERROR
    print(json.dumps({"equal": report.equal, **asdict(report)}, default=str) if given.json else report)
    return EQUAL if report.equal else DIFFERENT


def _renamed(text: str) -> tuple[str, str]:
    """Return an output and its name in the files."""
    name, _, other = text.partition("=")
    return name, other or name


if __name__ == "__main__":
    sys.exit(main())
