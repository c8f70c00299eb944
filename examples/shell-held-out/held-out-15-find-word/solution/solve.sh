#!/bin/bash
set -e
cd /app
grep glove egg.txt > fort.log
