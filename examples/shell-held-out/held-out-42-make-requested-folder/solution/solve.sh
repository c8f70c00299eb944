#!/bin/bash
set -e
cd /app
cat hare.txt
mkdir arch
