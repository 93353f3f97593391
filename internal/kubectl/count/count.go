package count

import "fmt"

// Of returns the number with the noun, which gets its plural with an s.
func Of[N int | int32 | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
