#!/bin/bash
set -e
cd /app
cat jungle.txt
rm bottle.txt
