#!/bin/bash
set -e
cd /app
grep badge lizard.log > cabin.txt
