#!/bin/bash
set -e
cd /app
wc -l < dock.log > clay.log
