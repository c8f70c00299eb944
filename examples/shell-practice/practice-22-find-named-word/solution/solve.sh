#!/bin/bash
set -e
cd /app
cat flint.log
grep camel bowl.txt > coast.txt
