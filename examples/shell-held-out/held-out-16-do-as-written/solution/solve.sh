#!/bin/bash
set -e
cd /app
cat camp.txt
wc -l < bush.txt > dream.txt
