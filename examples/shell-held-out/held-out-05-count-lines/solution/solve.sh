#!/bin/bash
set -e
cd /app
wc -l < book.txt > globe.txt
