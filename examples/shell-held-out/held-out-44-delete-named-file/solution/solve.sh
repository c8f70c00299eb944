#!/bin/bash
set -e
cd /app
cat lava.txt
rm meadow.txt
