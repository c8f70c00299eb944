#!/bin/bash
set -e
cd /app
head -n 3 goose.log > moon.txt
