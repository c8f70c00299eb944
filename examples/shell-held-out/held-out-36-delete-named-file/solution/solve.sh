#!/bin/bash
set -e
cd /app
cat frost.txt
rm castle.txt
