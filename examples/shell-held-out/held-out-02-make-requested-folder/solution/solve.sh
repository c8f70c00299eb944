#!/bin/bash
set -e
cd /app
cat creek.txt
mkdir mask
