// A library of a driver that is old and knows little: no texts of errors, one query, and another by
// the name that it had before driver 535.
// NOLINTBEGIN(readability-identifier-naming): the names are the library's
extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetHandleByUUID(const char* uuid, const void** out) {
  *out = uuid;
  return uuid[0] == 'G' ? 0 : 6;
}
int nvmlDeviceGetPowerUsage(const void*, unsigned* out) {
  *out = 1500;
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(const void*, unsigned long long* out) {
  *out = 0x80;
  return 0;
}
int nvmlDeviceGetTemperature(const void*, unsigned, unsigned*) { return 999; }

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
