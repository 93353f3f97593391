package nodeupgrade

import (
	"fmt"
	"regexp"
	"strconv"
)

var versionPattern = regexp.MustCompile(`^v([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})([-+][0-9A-Za-z.+-]{1,50})?$`)

// version of Kubernetes.
type version struct{ major, minor, patch int }

func parseVersion(text string) (version, error) {
	match := versionPattern.FindStringSubmatch(text)
	if match == nil {
		return version{}, fmt.Errorf("%.64q is no version of Kubernetes like v1.36.3", text)
	}
	var numbers [3]int
	for i := range numbers {
		numbers[i], _ = strconv.Atoi(match[i+1]) // the pattern has digits only
	}
	return version{numbers[0], numbers[1], numbers[2]}, nil
}

// isMinor reports whether two versions differ in more than the patch.
func (v version) isMinor(other version) bool { return v.major != other.major || v.minor != other.minor }

// isOlder reports whether v comes before another version.
func (v version) isOlder(other version) bool {
	if v.major != other.major {
		return v.major < other.major
	}
	if v.minor != other.minor {
		return v.minor < other.minor
	}
	return v.patch < other.patch
}
