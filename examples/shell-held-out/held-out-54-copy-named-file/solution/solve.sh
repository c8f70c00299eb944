#!/bin/bash
set -e
cd /app
cat jar.log
cp mirror.txt hive.txt
