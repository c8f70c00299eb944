#!/bin/bash
set -e
cd /app
wc -l < melon.txt > lamb.log
