package proxy

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
)

func TestIdentityOf(t *testing.T) {
	many := make([]string, maxGroups+1)
	for i := range many {
		many[i] = fmt.Sprint("group-", i)
	}
	for name, test := range map[string]struct {
		user user.DefaultInfo
		want string
	}{
		"person": {
			user.DefaultInfo{Name: "ann@example.org", Groups: []string{"ops", "dev", "ops", "system:authenticated"}}, "ann@example.org [dev ops]",
		},
		"extras and UID stay behind": {
			user.DefaultInfo{Name: "ann", UID: "1", Extra: map[string][]string{"scopes": {"all"}}}, "ann []",
		},
		"ServiceAccount": {
			user.DefaultInfo{Name: "system:serviceaccount:ci:argocd", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:ci"}},
			"management:system:serviceaccount:ci:argocd []",
		},
		"groups of administrators": {
			user.DefaultInfo{Name: "eve", Groups: []string{"system:masters", "kubeadm:cluster-admins"}}, "eve []",
		},
		"administrator of the management cluster": {user.DefaultInfo{Name: "system:admin"}, ""},
		"administrator by kubeadm":                {user.DefaultInfo{Name: "kubeadm:admin"}, ""},
		"nobody":                                  {user.DefaultInfo{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}, ""},
		"user named like a ServiceAccount":        {user.DefaultInfo{Name: "management:system:serviceaccount:ci:argocd"}, ""},
		"no name":                                 {user.DefaultInfo{}, ""},
		"newline":                                 {user.DefaultInfo{Name: "eve\nImpersonate-Group: ops"}, ""},
		"newline in a group":                      {user.DefaultInfo{Name: "eve", Groups: []string{"a\r\nb"}}, ""},
		"space at the end":                        {user.DefaultInfo{Name: "eve "}, ""},
		"long name":                               {user.DefaultInfo{Name: strings.Repeat("a", maxNameBytes+1)}, ""},
		"many groups":                             {user.DefaultInfo{Name: "eve", Groups: many}, ""},
		"no ServiceAccount, but named like one":   {user.DefaultInfo{Name: "system:serviceaccount:ci"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := identityOf(&test.user)
			if (err != nil) != (test.want == "") {
				t.Fatalf("got %+v, %v", got, err)
			}
			if is := fmt.Sprint(got.User, " ", got.Groups); err == nil && is != test.want {
				t.Errorf("got %s, want %s", is, test.want)
			}
		})
	}
}
