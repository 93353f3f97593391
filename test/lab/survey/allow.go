package survey

import "regexp"

// skipped are folders and files that are not looked at, with the reason.
func skipped() map[string]string {
	return map[string]string{
		"/proc":                        "the kernel's; what matters of it has sections of its own",
		"/sys":                         "the kernel's",
		"/dev":                         "the kernel's",
		"/run/systemd":                 "what systemd knows of this boot; units have a section of their own",
		"/run/containerd":              "sockets, and containers, which have a section of their own",
		"/var/lib/containerd":          "images stay; they, their layers and all containers have a section of their own",
		"/var/lib/elemental":           "the agent's: its key and its records",
		"/run/elemental-agent":         "the agent's mark of this boot",
		"/run/log/journal":             "the system's log",
		"/var/log/journal":             "the system's log",
		"/run/utmp":                    "the system's log of boots",
		"/var/log/wtmp":                "the system's log of boots",
		"/run/lab-boot-id":             "the lab's mark of this boot",
		"/var/lib/systemd/random-seed": "new at each boot",
		"/etc/hostname":                "a host keeps the name that its ElementalHost has",
		"/etc/hosts":                   "a host keeps the name that its ElementalHost has",
		"/etc/passwd-":                 "useradd and userdel keep the version before",
		"/etc/group-":                  "useradd and userdel keep the version before",
		"/etc/shadow-":                 "useradd and userdel keep the version before",
		"/etc/gshadow-":                "useradd and userdel keep the version before",
		"/etc/subuid-":                 "useradd and userdel keep the version before",
		"/etc/subgid-":                 "useradd and userdel keep the version before",
	}
}

// allowance is a line that may differ.
type allowance struct {
	section string
	pattern *regexp.Regexp
	// why says what makes it no leftover.
	why string
}

func allowances() []allowance {
	return []allowance{
		{"filter", regexp.MustCompile(`127\.0\.0\.11\b`), "Docker's resolver of the lab has other ports after each start"},
		{"sysctls", regexp.MustCompile(`^net\.netfilter\.nf_conntrack_count `), "counts connections"},
	}
}
