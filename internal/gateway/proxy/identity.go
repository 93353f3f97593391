package proxy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

const (
	// serviceAccountPrefix starts the names that ServiceAccounts of the management cluster
	// have in workload clusters, whose own ServiceAccounts may have the same names.
	serviceAccountPrefix = "management:"
	// maxNameBytes bounds the name of a user or group, maxGroups a user's groups.
	maxNameBytes = 512
	maxGroups    = 128
)

// Identity is who a caller is in workload clusters.
type Identity struct {
	User string
	// Groups are sorted.
	Groups []string
}

// identityOf returns who a user of the management cluster is in workload clusters. Names that
// begin with "system:" or "kubeadm:" have a meaning in every cluster, administrators among
// them, so no user of the management cluster has them there: such users are refused, such
// groups are dropped. ServiceAccounts get a prefix, and users whose own name has it are
// refused: they would be taken for a ServiceAccount. The workload cluster's API server itself
// adds system:authenticated.
func identityOf(u user.Info) (Identity, error) {
	name := u.GetName()
	if namespace, account, err := serviceaccount.SplitUsername(name); err == nil {
		name = serviceAccountPrefix + serviceaccount.MakeUsername(namespace, account)
	}
	switch {
	case name == "":
		return Identity{}, errors.New("the user has no name")
	case isReserved(name), strings.HasPrefix(u.GetName(), serviceAccountPrefix+"system:"):
		return Identity{}, fmt.Errorf("user %q is one of the management cluster's own, which has no rights in workload clusters", name)
	}
	if err := checkName("user", name); err != nil {
		return Identity{}, err
	}
	var groups []string
	for _, group := range u.GetGroups() {
		if group == "" || isReserved(group) {
			continue
		}
		if err := checkName("group", group); err != nil {
			return Identity{}, err
		}
		groups = append(groups, group)
	}
	slices.Sort(groups)
	groups = slices.Compact(groups)
	if len(groups) > maxGroups {
		return Identity{}, fmt.Errorf("the user has %d groups, more than %d", len(groups), maxGroups)
	}
	return Identity{User: name, Groups: groups}, nil
}

func isReserved(name string) bool {
	return strings.HasPrefix(name, "system:") || strings.HasPrefix(name, "kubeadm:")
}

// checkName refuses names that a header can't carry unchanged.
func checkName(kind, name string) error {
	if len(name) > maxNameBytes {
		return fmt.Errorf("the %s's name is longer than %d bytes", kind, maxNameBytes)
	}
	if strings.TrimSpace(name) != name || strings.ContainsFunc(name, unicode.IsControl) {
		return fmt.Errorf("the %s's name %q has control characters, or spaces at an end", kind, name)
	}
	return nil
}
