#!/bin/bash
set -e
cd /app
cat jar.log
mkdir elm
