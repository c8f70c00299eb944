#!/bin/bash
set -e
cd /app
grep desk lily.txt > chain.txt
