"""The formats that pages are written in: ``registry`` lists them, and each has one small module of syntax."""
