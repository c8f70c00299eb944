#!/bin/bash
set -e
cd /app
cat horn.log
rm jewel.log
