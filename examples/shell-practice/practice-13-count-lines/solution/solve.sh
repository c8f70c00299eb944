#!/bin/bash
set -e
cd /app
wc -l < knee.log > curtain.log
