"""The worker process: claims runs and works through them; see `runtime.worker.service`."""
