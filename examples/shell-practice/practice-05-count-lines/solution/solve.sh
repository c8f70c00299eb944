#!/bin/bash
set -e
cd /app
wc -l < giant.log > kettle.txt
