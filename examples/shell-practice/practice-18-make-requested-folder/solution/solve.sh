#!/bin/bash
set -e
cd /app
cat flag.txt
mkdir chain
