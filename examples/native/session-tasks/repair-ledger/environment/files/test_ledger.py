import unittest

import ledger


class Amounts(unittest.TestCase):
    def test_what_was_paid_counts(self) -> None:
        self.assertEqual(ledger.amount("day 3 | oats | 120 | paid"), 120)

    def test_what_was_refunded_counts_against_the_total(self) -> None:
        self.assertEqual(ledger.amount("day 4 | oats | 120 | refunded"), -120)


if __name__ == "__main__":
    unittest.main()
