#!/bin/bash
set -e
cd /app
cat fig.txt
mkdir iron
