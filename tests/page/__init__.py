"""Tests of the page, in a headless Chromium."""
