package protocol

import "strings"

// SameOSImage reports whether two sources of the elemental CLI name the same image of Elemental
// OS. The CLI treats docker: as oci:, and adds the tag latest.
func SameOSImage(a, b string) bool { return normalizeSource(a) == normalizeSource(b) }

func normalizeSource(source string) string {
	scheme, rest, found := strings.Cut(source, ":")
	if !found {
		return source
	}
	rest = strings.TrimPrefix(rest, "//")
	if scheme != "oci" && scheme != "docker" {
		return scheme + ":" + rest
	}
	if last := rest[strings.LastIndex(rest, "/")+1:]; !strings.ContainsAny(last, ":@") {
		rest += ":latest"
	}
	rest = strings.TrimPrefix(strings.TrimPrefix(rest, "docker.io/"), "library/")
	return "oci:" + rest
}
