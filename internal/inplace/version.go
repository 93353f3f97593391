package inplace

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// versionObstacle says why Kubernetes can't be upgraded from one version to the other; blank
// if it can.
func versionObstacle(from, to string) string {
	if from == to {
		return ""
	}
	is, err := version.ParseSemantic(from)
	if err != nil {
		return fmt.Sprintf("%q is no version", from)
	}
	wanted, err := version.ParseSemantic(to)
	if err != nil {
		return fmt.Sprintf("%q is no version", to)
	}
	switch {
	case wanted.LessThan(is):
		return fmt.Sprintf("%s is lower than %s", to, from)
	case wanted.Major() != is.Major() || wanted.Minor() > is.Minor()+1:
		return fmt.Sprintf("%s is more than one minor version above %s", to, from)
	default:
		return ""
	}
}

// IsMinorUpgrade reports whether the versions differ in their minor version. Versions that
// can't be parsed count as different.
func IsMinorUpgrade(from, to string) bool {
	is, err := version.ParseSemantic(from)
	if err != nil {
		return true
	}
	wanted, err := version.ParseSemantic(to)
	return err != nil || wanted.Major() != is.Major() || wanted.Minor() != is.Minor()
}

// crosses reports whether the change goes from below the minor version of 1 to it or above.
func crosses(from, to string, minor uint) bool {
	is, err := version.ParseSemantic(from)
	if err != nil {
		return false
	}
	wanted, err := version.ParseSemantic(to)
	return err == nil && is.Minor() < minor && wanted.Minor() >= minor
}
