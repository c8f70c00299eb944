#!/bin/bash
set -e
cd /app
cat cheese.txt
mkdir heart
