package update

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

// semantic matches a version number of https://semver.org with the "v" of a tag.
var semantic = regexp.MustCompile(`^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)` +
	`(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?$`)

var number = regexp.MustCompile(`^[0-9]+$`)

// permit returns an error if a program of version from must not be replaced by one
// of version to, because that is older or not a semantic version. A program without
// a version number may be replaced by any.
func permit(from, to string) error {
	target := semantic.FindStringSubmatch(to)
	if target == nil {
		return fmt.Errorf("%q is no semantic version like v1.2.3: correct the pinned version", to)
	}
	present := semantic.FindStringSubmatch(from)
	if present != nil && precedence(target, present) < 0 {
		return fmt.Errorf("%s is older than %s, which runs, and an agent never goes back: pin %s or newer, or install the older one by hand",
			to, from, from)
	}
	return nil
}

// precedence compares two versions by https://semver.org, section 11. It ignores
// build metadata.
func precedence(a, b []string) int {
	for i := 1; i <= 3; i++ {
		if order := compareNumbers(a[i], b[i]); order != 0 {
			return order
		}
	}
	switch {
	case a[4] == b[4]:
		return 0
	case a[4] == "":
		return 1
	case b[4] == "":
		return -1
	}
	left, right := strings.Split(a[4], "."), strings.Split(b[4], ".")
	for i := range min(len(left), len(right)) {
		if order := compareIdentifiers(left[i], right[i]); order != 0 {
			return order
		}
	}
	return cmp.Compare(len(left), len(right))
}

// compareIdentifiers compares parts of pre-releases. Numbers are compared by their
// value, and are lower than words.
func compareIdentifiers(a, b string) int {
	switch isNumber, other := number.MatchString(a), number.MatchString(b); {
	case isNumber && other:
		return compareNumbers(a, b)
	case isNumber:
		return -1
	case other:
		return 1
	}
	return cmp.Compare(a, b)
}

// compareNumbers compares decimal numbers of any length.
func compareNumbers(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}
