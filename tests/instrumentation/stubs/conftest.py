"""Small frameworks that only imitate the call structure of the real ones: nothing in here is a test."""

collect_ignore_glob = ["*"]
