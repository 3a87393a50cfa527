package outbox

// array is the text of a Postgres array (array_in): {"a","b",NULL}.
type array struct{ buf []byte }

func (a *array) separate() {
	if len(a.buf) == 0 {
		a.buf = append(a.buf, '{')
		return
	}
	a.buf = append(a.buf, ',')
}

func (a *array) add(s string) {
	a.separate()
	a.buf = append(a.buf, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			a.buf = append(a.buf, '\\')
		}
		a.buf = append(a.buf, s[i])
	}
	a.buf = append(a.buf, '"')
}

func (a *array) null() {
	a.separate()
	a.buf = append(a.buf, "NULL"...)
}

// addOrNull makes NULL of the empty string.
func (a *array) addOrNull(s string) {
	if s == "" {
		a.null()
		return
	}
	a.add(s)
}

func (a *array) String() string { return string(a.buf) + "}" }
