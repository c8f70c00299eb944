#!/bin/bash
set -e
cd /app
cat knot.txt
sort lava.txt > dust.log
