package proxy

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Names that mean somebody in every cluster mean nobody who comes from the management
// cluster.
func TestThreat60_ReservedNames(t *testing.T) {
	for name, tc := range map[string]struct {
		user   string
		groups []string
		want   string // blank if the user is refused
	}{
		"an administrator":       {"system:admin", []string{"system:masters"}, ""},
		"kubeadm's":              {"kubeadm:cluster-admin", nil, ""},
		"a controller":           {"system:kube-controller-manager", nil, ""},
		"a Node":                 {"system:node:edge-1", []string{"system:nodes"}, ""},
		"groups":                 {"ann", []string{"ops", "system:masters", "kubeadm:cluster-admins", "system:nodes"}, "ann [ops]"},
		"a ServiceAccount":       {"system:serviceaccount:ci:bot", []string{"system:serviceaccounts"}, "management:system:serviceaccount:ci:bot []"},
		"a user named like that": {"management:system:serviceaccount:ci:bot", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			is, err := identityOf(&user.DefaultInfo{Name: tc.user, Groups: tc.groups})
			if tc.want == "" {
				g.Expect(err).To(HaveOccurred())
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(fmt.Sprint(is.User, " ", is.Groups)).To(Equal(tc.want))
		})
	}
}
