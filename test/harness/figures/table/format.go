package table

import (
	"fmt"
	"time"
)

// KiB and the functions below format numbers with three significant digits and a unit.
func KiB(bytes float64) string { return digits(bytes/(1<<10)) + " KiB" }

// MiB formats bytes.
func MiB(bytes float64) string { return digits(bytes/(1<<20)) + " MiB" }

// Duration formats a duration.
func Duration(d time.Duration) string {
	switch {
	case d >= time.Second:
		return digits(d.Seconds()) + " s"
	case d >= time.Millisecond:
		return digits(float64(d)/float64(time.Millisecond)) + " ms"
	default:
		return digits(float64(d)/float64(time.Microsecond)) + " µs"
	}
}

// Count formats an integer.
func Count(n int) string {
	if n < 0 {
		return "-" + Count(-n)
	}
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", Count(n/1000), n%1000)
}

// Number formats a number without a unit.
func Number(n float64) string { return digits(n) }

// Ratio formats a divided by b.
func Ratio(a, b float64) string {
	if b == 0 {
		return ""
	}
	return fmt.Sprintf("%.2fx", a/b)
}

// Percent formats a share of 1.
func Percent(share float64) string { return digits(100*share) + " %" }

// digits rounds to three significant digits, but never before the decimal point.
func digits(n float64) string {
	switch abs := max(n, -n); {
	case abs == 0:
		return "0"
	case abs < 0.1:
		return fmt.Sprintf("%.3f", n)
	case abs < 10:
		return fmt.Sprintf("%.2f", n)
	case abs < 100:
		return fmt.Sprintf("%.1f", n)
	case abs < 1000:
		return fmt.Sprintf("%.0f", n)
	default:
		return Count(int(n + 0.5))
	}
}
