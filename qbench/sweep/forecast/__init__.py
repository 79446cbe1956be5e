"""What a sweep will take: from past records, or from a probe."""
