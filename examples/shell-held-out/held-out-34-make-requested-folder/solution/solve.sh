#!/bin/bash
set -e
cd /app
cat bench.txt
mkdir chalk
