//! Best-effort views of a running cell: a loopback web page and a terminal screen.
