"""What the soak borrows: the tests' misbehaving peers and stores, and what the other benches know of machines."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "epochs"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "service"))
sys.path.append(str(Path(__file__).resolve().parents[2] / "client/python/tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "client/python/src"))
import http2_peer as http2
import machine
from fault_proxy import Fault, FaultProxy, cut, error, stall
from forebay.errors import ForebayError, translate
from http2_peer import Kind, Peer
from proxy import RESET, Proxy
from service_server import OWN_CONNECTION
from setting import Noise, say, table
from web_server import Files, WebServer

ROOT = machine.ROOT

__all__ = [
    "OWN_CONNECTION",
    "RESET",
    "ROOT",
    "Fault",
    "FaultProxy",
    "Files",
    "ForebayError",
    "Kind",
    "Noise",
    "Peer",
    "Proxy",
    "WebServer",
    "cut",
    "error",
    "http2",
    "machine",
    "say",
    "stall",
    "table",
    "translate",
]
