package outbox

import "strconv"

// unstorable says whether valid JSON has an escape that jsonb refuses because it keeps characters, not escapes: \u0000, or
// half of a surrogate pair.
func unstorable(s string) bool {
	high := false // the last thing was the first half of a pair
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			if high {
				return true
			}
			continue
		}
		i++ // what is escaped
		if s[i] != 'u' {
			if high {
				return true
			}
			continue
		}
		code, _ := strconv.ParseUint(s[i+1:i+5], 16, 16) // four hexadecimal digits: it is valid JSON
		i += 4
		low := code >= 0xdc00 && code <= 0xdfff
		if code == 0 || low != high {
			return true
		}
		high = code >= 0xd800 && code <= 0xdbff
	}
	return false // after the last escape there was at least the quote that ends the string
}
