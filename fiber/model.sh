#!/bin/sh
# Runs the models of swtch-fiber's protocols between threads: every order of their steps, up to a bound
# (swtch-fiber/tests/models). About half a minute, after a first build.
set -eu
cd "$(dirname "$0")/swtch-fiber/tests/models"
# The tests of the files that are compiled here need no model.
exec cargo test --locked "$@" -- --skip scheduler::
