"""What each verb of ``paddle-amp`` takes: names, options, help. A verb's work is imported when it is called."""
