#ifndef PQTX_LIB_STATUS_H
#define PQTX_LIB_STATUS_H

#include <pqtx/status.h>

pqtx_advice pqtx__advice_of_status(pqtx_status status);

#endif
