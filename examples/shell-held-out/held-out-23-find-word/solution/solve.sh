#!/bin/bash
set -e
cd /app
grep fish lamb.log > castle.txt
