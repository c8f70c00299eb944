#!/bin/bash
set -e
cd /app
cat engine.txt
rm bowl.log
