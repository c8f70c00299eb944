#!/bin/bash
set -e
cd /app
grep dolphin knot.txt > coin.txt
